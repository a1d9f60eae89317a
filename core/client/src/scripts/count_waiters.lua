-- Counts the places in the queues of the lock keys that still count; replies the largest number.
--
-- KEYS   as in queue.lua
local most = 0
for i = 1, locks do
  most = math.max(most, redis.call('ZCOUNT', KEYS[2 * locks + i], '(' .. millis, '+inf'))
end
return most
