-- Gives the lock keys of a holder back (a release, or an attempt that was lost): deletes those that
-- are its own, and never another's. Runs behind plain.lua, or as a function before call.lua.
--
-- KEYS   the lock keys
-- ARGV   1 holder id
--        2 for a lease that has ended: the most milliseconds that may be left of a key; one that lasts longer stays,
--          as another who has the token has extended it
-- reply  {code, token, pttl, time}, integers
--        code   1 all were the holder's · 2 at least one was gone · 3 at least one is another's
--        token, pttl, time   0, -2, 0 (not read)
--
-- A key of another type does not keep the others from being deleted; its error is the reply.
local most = tonumber(ARGV[2])
local function delete(key)
  if not most or redis.call('PTTL', key) <= most then redis.call('DEL', key) end
end

if locks == 1 then
  local value = redis.call('GET', KEYS[1])
  if value == ARGV[1] then delete(KEYS[1]) end
  return {value == ARGV[1] and 1 or value and 3 or 2, 0, -2, 0}
end

local code, problem = 1, nil
for i = 1, locks do
  local value = redis.pcall('GET', KEYS[i])
  if not value then
    code = math.max(code, 2)
  elseif value == ARGV[1] then
    delete(KEYS[i])
  elseif type(value) == 'table' then
    problem = value
  else
    code = 3
  end
end
return problem or {code, 0, -2, 0}
