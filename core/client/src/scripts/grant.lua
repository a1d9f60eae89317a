-- Takes the lock for a holder: every lock key of the lease, or none of them. Runs behind plain.lua,
-- or in fair mode behind queue.lua and fair.lua.
--
-- KEYS   the n lock keys; in fair mode as in queue.lua
-- ARGV   1 the canary key, '' = nothing is guarded
--        2 the least number of beats that the canary must have, a blank, and how it must begin
--        3 holder id
--        4 ttl of the lock keys in milliseconds
--        with fencing:
--        5 proposed fencing token
--        6 the table of fences, a sorted set: its members are buckets, their scores the highest tokens
--          that were granted or asked for
--        7... the n buckets of the lock keys; some may be the same
--        in fair mode, at the end: the name of the waiter, and when it arrived in microseconds since 1970
-- reply  {code, token, pttl, time}, integers
--        code   1 granted (also if the keys were this holder's already) · 3 refused, nothing changed ·
--               5 the node has forgotten what it knew when the canary was read; no key is the holder's
--        token  the highest fence: after a grant the granted token; 0 = none
--        pttl   of a refusal: milliseconds until the last of the others' keys is free, or until the turn of
--               an earlier waiter is over; -1 = never
--        time   this node's clock in microseconds
--
-- Canary and table are not among KEYS: they lie in another hash slot, which is of no matter on one server.
local clock = redis.call('TIME')
local time = clock[1] * 1000000 + clock[2]
local holder, ttl, proposal, fence = ARGV[3], ARGV[4], tonumber(ARGV[5]), 0
local count, last = locks, proposal and 6 + locks or 0

-- What is not granted leaves no key behind, also none that was set just now by commands that could not look first.
local function without_keys(reply)
  for i = 1, count do
    if redis.pcall('GET', KEYS[i]) == holder then redis.call('DEL', KEYS[i]) end
  end
  return reply
end

if ARGV[1] ~= '' then
  local least, prefix = string.match(ARGV[2], '^(%d+) (.*)$')
  local canary = redis.call('GET', ARGV[1]) or ''
  local beats = string.sub(canary, 1, #prefix) == prefix and string.match(canary, '^%d+', #prefix + 1)
  if not beats or tonumber(beats) < tonumber(least) then return without_keys({5, 0, -2, time}) end
end

for i = 7, last do
  local seen = redis.pcall('ZSCORE', ARGV[6], ARGV[i])
  if type(seen) == 'table' then return without_keys(seen) end
  fence = math.max(fence, tonumber(seen or 0))
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
if #free > 0 and is_behind() then return {3, fence, TURN, time} end

-- Asked again after a lost reply, or to make the rest of a half-lost set whole: what is held already
-- is kept for at least the ttl, never for less.
if #free < count then
  for i = 1, count do
    local left = redis.call('PTTL', KEYS[i])
    if left >= 0 and left < tonumber(ttl) then redis.call('PEXPIRE', KEYS[i], ttl) end
  end
end
for i = 1, #free do
  redis.call('SET', free[i], holder, 'PX', ttl)
end

-- Always a token of its own, also for what was held already: the fence may be another's. The clock of a client may
-- neither raise it for ever nor let it go back: a proposal counts within a second of this node's own clock, which
-- makes up for fences that the node has forgotten.
if proposal then
  fence = math.max(fence + 1, time - 1000000, math.min(proposal, time + 1000000))
  local digits = string.format('%.0f', fence) -- tostring writes 1.75e+15
  for i = 7, last do
    local raised = redis.pcall('ZADD', ARGV[6], digits, ARGV[i])
    if type(raised) == 'table' then return without_keys(raised) end
  end
end
return {1, fence, -2, time}
