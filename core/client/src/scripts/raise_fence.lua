-- Raises the fence (the highest fencing token that the node knows) of every resource of an
-- acquisition to its token, if every lock key is the holder's.
--
-- KEYS   the n lock keys
-- ARGV   1 holder id
--        2 fencing token
--        3 the table of fences
--        4... the n buckets of the lock keys
-- reply  {code, token, pttl, time}, integers
--        code   1 raised (or higher already) · 2 a lock key is gone · 3 a lock key is another's
--        token  the highest fence afterwards; 0 = none
--        pttl, time   -2, 0 (not read)
local code, highest = 1, 0
for i = 1, #KEYS do
  local value = redis.call('GET', KEYS[i])
  if not value then
    code = math.max(code, 2)
  elseif value ~= ARGV[1] then
    code = 3
  end
end
if code ~= 1 then return {code, 0, -2, 0} end

for i = 4, #ARGV do
  redis.call('ZADD', ARGV[3], 'GT', ARGV[2], ARGV[i])
  highest = math.max(highest, tonumber(redis.call('ZSCORE', ARGV[3], ARGV[i])))
end
return {1, highest, -2, 0}
