-- Tells a caller how many waiters a lock has: of the queues of its lock keys, the longest counts.
-- Places that have ended are left out. Runs behind queue.lua.
--
-- KEYS   as in queue.lua
local most = 0
for i = 1, locks do
  most = math.max(most, redis.call('ZCOUNT', KEYS[2 * locks + i], '(' .. millis, '+inf'))
end
return most
