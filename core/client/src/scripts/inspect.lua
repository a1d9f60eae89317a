-- Tells whether a holder still has its lock keys, and else when they are free. Changes nothing.
--
-- KEYS   the n lock keys
-- ARGV   1 holder id
--        2 the table of fences
--        3... the n buckets of the lock keys
-- reply  {code, token, pttl, time}, integers
--        code   1 all are the holder's · 2 at least one is gone · 3 at least one is another's
--        token  the highest fence; 0 = none, or not readable for this user
--        pttl   1: milliseconds until the first key is gone · 3: until the last of the others' keys is
--               free · -1 = never · -2 = not told
--        time   this node's clock in microseconds
--
-- The table is not among KEYS: a user whose access list covers the lock keys alone can look all the same, and
-- sees no fence.
local code, first, last = 1, -1, -2
for i = 1, #KEYS do
  local value = redis.call('GET', KEYS[i])
  if not value then
    code = math.max(code, 2)
  else
    local left = redis.call('PTTL', KEYS[i])
    if value ~= ARGV[1] then
      code = 3
      if left == -1 or (last ~= -1 and left > last) then last = left end
    elseif left >= 0 and (first == -1 or left < first) then
      first = left
    end
  end
end

local fence = 0
for i = 3, #ARGV do
  local seen = redis.pcall('ZSCORE', ARGV[2], ARGV[i])
  if type(seen) == 'string' then fence = math.max(fence, tonumber(seen) or 0) end
end
local clock = redis.call('TIME')
local time = clock[1] * 1000000 + clock[2]
return {code, fence, code == 1 and first or (code == 3 and last or -2), time}
