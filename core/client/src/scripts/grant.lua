-- Takes every lock key for one holder, or none of them.
--
-- KEYS   the n lock keys; with fencing also their n fence keys, in the same order
-- ARGV   1 holder id
--        2 ttl of the lock keys in milliseconds
--        3 the canary key, '' = nothing is guarded  (absent when a lost key is restored)
--        4 what must stand in the canary key
--        5 proposed fencing token  (only with fencing)
--        6 ttl of the fence keys in milliseconds, at least the ttl of the lock keys (only with fencing)
-- reply  time alone, an integer: granted, with the proposed token (with fencing); to write a table takes the
--        server a quarter of the whole grant
--        else {code, token, pttl, time}, integers
--        code   1 granted (also if the keys were this holder's already) · 3 refused, nothing changed ·
--               5 the node has forgotten what it knew when the canary was read, nothing changed
--        token  the highest fence: after a grant the granted token; 0 = none
--        pttl   of a refusal: milliseconds until the last of the others' keys is free; -1 = never
--        time   this node's clock in microseconds
--
-- The canary key is not among KEYS: it lies in another hash slot, which is of no matter on one server.
-- Every call from a script costs about as much as a command of its own, so the usual case has the fewest.
local holder, ttl, canary, proposal = ARGV[1], ARGV[2], ARGV[3] or '', tonumber(ARGV[5])
local count = proposal and #KEYS / 2 or #KEYS

local clock = redis.call('TIME')
local fence, time = 0, clock[1] * 1000000 + clock[2]
if canary ~= '' and redis.call('GET', canary) ~= ARGV[4] then return {5, 0, -2, time} end
-- A clock that is far ahead must not raise the fence for ever: a proposal counts up to a second
-- beyond this node's own clock.
local most = proposal and math.min(proposal, time + 1000000)
local function text(number) return string.format('%.0f', number) end -- tostring writes 1.75e+15

-- The usual case: one lock, and it is free.
if count == 1 and redis.call('SET', KEYS[1], holder, 'NX', 'PX', ttl) then
  if not proposal then return time end
  local seen = redis.pcall('SET', KEYS[2], most == proposal and ARGV[5] or text(most), 'PX', ARGV[6], 'GET')
  if type(seen) == 'table' then
    redis.call('DEL', KEYS[1])
    return seen
  end
  seen = tonumber(seen or 0) or 0
  if seen < most then return most == proposal and time or {1, most, -2, time} end
  redis.call('SET', KEYS[2], text(seen + 1), 'PX', ARGV[6])
  return {1, seen + 1, -2, time}
end

-- Whatever can fail (a key of another type) is read before the first write.
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
  fence = math.max(most, fence + 1)
  for i = count + 1, #KEYS do
    redis.call('SET', KEYS[i], text(fence), 'PX', ARGV[6])
  end
end
return {1, fence, -2, time}
