-- Keeps the lock keys of the leases that holders extend for at least a new ttl from now: many leases in one
-- call, each of them all or nothing.
--
-- KEYS   the lock keys of the first lease, then of the second, ...
-- ARGV   three for each lease: holder id, new ttl in milliseconds, number of its lock keys
--        behind the ttl '/' and a number: the ttl is set as it is, also where up to so many milliseconds are left (a
--        release that keeps the lock for a while)
-- reply  {code, code, ...}, integers, one for each lease
--        code   1 extended · 2 a key is gone · 3 a key is another's · 4 a key is of another type
--
-- A key that is gone is never made again here: its reply could get lost, and the next round would
-- then count a key that stood free for a while as proof of holding. A longer time that is left stays: this call
-- may come late, or from another who has the token, and others may trust that time.
local reply, key = {}, 0
for lease = 1, #ARGV, 3 do
  local holder, ttl, count = ARGV[lease], ARGV[lease + 1], tonumber(ARGV[lease + 2])
  local least, most = tonumber(ttl), -1
  if not least then
    ttl, most = string.match(ttl, '^(%d+)/(%d+)$')
    least, most = tonumber(ttl), tonumber(most)
  end
  local code = 1
  for i = key + 1, key + count do
    local value = redis.pcall('GET', KEYS[i])
    if not value then
      code = math.max(code, 2)
    elseif type(value) == 'table' then
      -- Told to this lease alone: the others of the call are not its business. Only a wrong type is
      -- certain to be about this key; anything else fails the call.
      if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
      code = 4
    elseif value ~= holder then
      code = math.max(code, 3)
    end
  end
  if code == 1 then
    for i = key + 1, key + count do
      local left = redis.call('PTTL', KEYS[i])
      if left < least or left <= most then redis.call('PEXPIRE', KEYS[i], ttl) end
    end
  end
  key = key + count
  reply[#reply + 1] = code
end
return reply
