-- Raises the fence of the resources to a token, if every lock key is the holder's.
--
-- KEYS   the n lock keys, then their n fence keys, in the same order
-- ARGV   1 holder id
--        2 fencing token
--        3 least ttl of the fence keys in milliseconds
-- reply  {code, token, pttl, time}, integers
--        code   1 raised (or higher already) · 2 a lock key is gone · 3 a lock key is another's
--        token  the highest fence afterwards; 0 = none
--        pttl, time   -2, 0 (not read)
local count, code, highest = #KEYS / 2, 1, 0
for i = 1, count do
  local value = redis.call('GET', KEYS[i])
  if not value then
    code = math.max(code, 2)
  elseif value ~= ARGV[1] then
    code = 3
  end
end
if code ~= 1 then return {code, 0, -2, 0} end

for i = count + 1, #KEYS do
  redis.call('ZADD', KEYS[i], 'GT', ARGV[2], 'token')
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
  highest = math.max(highest, tonumber(redis.call('ZSCORE', KEYS[i], 'token')))
end
return {1, highest, -2, 0}
