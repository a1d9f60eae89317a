-- Takes every lock key of a lease, or none of them; or does so for many leases, for each by itself.
--
-- KEYS   of one lease: the n lock keys; with fencing also their n fence keys, in the same order
--        of many, which have one lock each: for every lease its lock key; with fencing then its fence key
-- ARGV   1 the canary key, '' = nothing is guarded
--        2 what must stand in the canary key
--        then four for each lease: holder id, ttl of the lock keys in milliseconds,
--        proposed fencing token, ttl of the fence keys in milliseconds, at least that of the lock keys
--        (without fencing the last two are '' for many, and absent for one)
-- reply  to one lease: time alone, an integer: granted, with the proposed token (with fencing); to write a table
--        takes the server a quarter of the whole grant
--        else {code, token, pttl, time}, integers
--        code   1 granted (also if the keys were this holder's already) · 3 refused, nothing changed ·
--               5 the node has forgotten what it knew when the canary was read, nothing changed
--        token  the highest fence: after a grant the granted token; 0 = none
--        pttl   of a refusal: milliseconds until the last of the others' keys is free; -1 = never
--        time   this node's clock in microseconds
--        to many: {time, token, token, ...}, integers
--        token  of the granted lease; 0 = granted without fencing; -1 = nothing changed: to be asked for by
--               itself, it hears why
--
-- The canary key is not among KEYS: it lies in another hash slot, which is of no matter on one server.
-- Every call from a script costs about as much as a command of its own, so the usual case has the fewest.
local clock = redis.call('TIME')
local time = clock[1] * 1000000 + clock[2]
-- A clock that is far ahead must not raise the fence for ever: a proposal counts up to a second
-- beyond this node's own clock.
local latest = time + 1000000
local function text(number) return string.format('%.0f', number) end -- tostring writes 1.75e+15

local many = #ARGV > 6
local count = ARGV[5] and #KEYS / 2 or #KEYS -- of one lease
local stands = ARGV[1] == '' or redis.call('GET', ARGV[1]) == ARGV[2]
if not stands and not many then return {5, 0, -2, time} end

-- The usual case: one lock, and it is free.
if many or count == 1 then
  local set = many and redis.pcall or redis.call -- of one, an error ends the script
  local reply, key = many and {time}, 1
  for lease = 3, #ARGV, 4 do
    local proposal, token = tonumber(ARGV[lease + 2]), -1
    local done = stands and set('SET', KEYS[key], ARGV[lease], 'NX', 'PX', ARGV[lease + 1])
    if done and not done.err then
      token = 0
      if proposal then
        token = math.min(proposal, latest)
        local digits = token == proposal and ARGV[lease + 2] or text(token)
        local seen = redis.pcall('SET', KEYS[key + 1], digits, 'PX', ARGV[lease + 3], 'GET')
        if type(seen) == 'table' then
          redis.call('DEL', KEYS[key])
          done, token = seen, -1
        else
          local least = (tonumber(seen or 0) or 0) + 1
          if token < least then
            token = least
            redis.call('SET', KEYS[key + 1], text(token), 'PX', ARGV[lease + 3])
          end
        end
      end
    end
    if many then
      reply[#reply + 1] = token
    elseif token >= 0 then
      return token == (proposal or 0) and time or {1, token, -2, time}
    elseif done then
      return done
    end
    key = key + (proposal and 2 or 1)
  end
  if many then return reply end
end

-- Whatever can fail (a key of another type) is read before the first write.
local holder, ttl, proposal, fence = ARGV[3], ARGV[4], tonumber(ARGV[5]), 0
if proposal then
  for i = count + 1, #KEYS do
    local seen = tonumber(redis.call('GET', KEYS[i]) or 0) or 0
    if seen > fence then fence = seen end
  end
end

local free, pttl = {}, -2
for i = 1, count do
  local value = redis.call('GET', KEYS[i])
  if not value then
    free[#free + 1] = KEYS[i]
  elseif value ~= holder then
    local left = redis.call('PTTL', KEYS[i])
    if left == -1 or (pttl ~= -1 and left > pttl) then pttl = left end
  end
end
if pttl ~= -2 then return {3, fence, pttl, time} end

-- Asked again after a lost reply, or to make the rest of a half-lost set whole: what is held already
-- is kept for at least the ttl, never for less.
if #free < count then
  for i = 1, count do
    local left = redis.call('PTTL', KEYS[i])
    if left >= 0 and left < tonumber(ttl) then redis.call('PEXPIRE', KEYS[i], ttl) end
  end
  if #free == 0 and fence > 0 then return {1, fence, -2, time} end
end

for i = 1, #free do
  redis.call('SET', free[i], holder, 'PX', ttl)
end
if proposal then
  fence = math.max(math.min(proposal, latest), fence + 1)
  for i = count + 1, #KEYS do
    redis.call('SET', KEYS[i], text(fence), 'PX', ARGV[6])
  end
end
return {1, fence, -2, time}
