-- Looks at a node for the guards, which decide whether its grants count: puts a new canary, the key
-- by which they see that a node lost its keys, in the place of the last one; adds the client's
-- notes for others; replies what stands there.
--
-- KEYS   1 the canary key · 2 the notes key, a hash
-- ARGV   1 ttl of both keys in milliseconds
--        2 the canary that was seen, '' = none
--        3 what is to stand in its place, without this node's clock; '' = nothing
--        4 the number of holdings that follow, each as five values: name, version, and in milliseconds for how long
--          nodes are asked to keep keys, since when, and for how long the entry holds
--        behind them sightings, each as three values: id of another node's memory, its number of beats, and by how
--          many microseconds its clock is ahead of this one at most ('' = not known; behind '=' it replaces what was
--          noted before, as this node's clock was set back)
-- reply  {canary or false, this node's clock in microseconds, {holdings as in ARGV}, {sightings as in ARGV,
--        each with a fourth value: how many microseconds ago the clocks were read}}
--
-- Fields of the notes: 'h:' and a name = version, keep, began, until in milliseconds of this node's clock ·
-- 's:' and an id = beats, microseconds ahead (or '-'), when, in microseconds of this node's clock.
-- A node with notes and no canary has lost its memory: nothing is joined then.
local MOST, RATE_DIVISOR = 64, 2000
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local millis = math.floor(now / 1000)
local function digits(number) return string.format('%.0f', number) end

local canary = redis.call('GET', KEYS[1])
local is_new = ARGV[3] ~= '' and (canary or '') == ARGV[2]
if is_new then canary = ARGV[3] .. ' ' .. digits(now) end

local holdings, sightings, counts = {}, {}, {h = 0, s = 0}
local notes = redis.call('HGETALL', KEYS[2])
for i = 1, #notes, 2 do
  local kind, name = string.sub(notes[i], 1, 1), string.sub(notes[i], 3)
  if kind == 'h' then
    local version, keep, began, untl = string.match(notes[i + 1], '^(%d+) (%d+) (%-?%d+) (%-?%d+)$')
    if untl and tonumber(untl) > millis then
      holdings[name] = {tonumber(version), tonumber(keep), tonumber(began), tonumber(untl)}
      counts.h = counts.h + 1
    else
      redis.call('HDEL', KEYS[2], notes[i])
    end
  elseif kind == 's' then
    local beats, most, at = string.match(notes[i + 1], '^(%d+) (%-?%d*) (%d+)$')
    if at then
      sightings[name] = {tonumber(beats), tonumber(most), tonumber(at)}
      counts.s = counts.s + 1
    end
  end
end

local last = 4 + 5 * tonumber(ARGV[4])
local has_written = false
for i = 5, canary and last or 0, 5 do
  local name, known = ARGV[i], holdings[ARGV[i]]
  local fresh = {tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), millis - ARGV[i + 3], millis + ARGV[i + 4]}
  if known then
    local untl = math.max(known[4], fresh[4])
    if known[1] > fresh[1] then
      fresh = known
    elseif known[1] == fresh[1] then
      fresh = {known[1], math.max(known[2], fresh[2]), math.min(known[3], fresh[3])}
    end
    fresh = {fresh[1], fresh[2], fresh[3], untl}
  else
    counts.h = counts.h + 1
  end
  -- Those that all clients share are few, and what finds no other place goes into them.
  if known or counts.h <= MOST or string.sub(name, 1, 4) == 'all:' then
    holdings[name] = fresh
    redis.call('HSET', KEYS[2], 'h:' .. name,
      digits(fresh[1]) .. ' ' .. digits(fresh[2]) .. ' ' .. digits(fresh[3]) .. ' ' .. digits(fresh[4]))
    has_written = true
  end
end

for i = last + 1, canary and #ARGV or 0, 3 do
  local id, known = ARGV[i], sightings[ARGV[i]]
  local beats, anew, digits_of_most = tonumber(ARGV[i + 1]), string.match(ARGV[i + 2], '^(=?)(.*)$')
  local most = tonumber(digits_of_most)
  local fresh = {beats, nil, now}
  if known then
    fresh = {math.max(beats, known[1]), known[2], known[3]}
  else
    counts.s = counts.s + 1
  end
  -- A lead is never replaced by a larger one than it may have become, save by one from before this clock was set back.
  local bound = fresh[2] and fresh[3] <= now and fresh[2] + math.floor((now - fresh[3]) / RATE_DIVISOR)
  if most and (anew == '=' or not bound or most < bound) then fresh[2], fresh[3] = most, now end
  if not known or fresh[1] > known[1] or fresh[2] ~= known[2] or fresh[3] ~= known[3] then
    sightings[id] = fresh
    redis.call('HSET', KEYS[2], 's:' .. id,
      digits(fresh[1]) .. ' ' .. (fresh[2] and digits(fresh[2]) or '') .. ' ' .. digits(fresh[3]))
    has_written = true
  end
end
while counts.s > MOST do
  local oldest
  for id, seen in pairs(sightings) do
    local other = oldest and sightings[oldest]
    if not other or seen[3] < other[3] or (seen[3] == other[3] and id < oldest) then oldest = id end
  end
  sightings[oldest] = nil
  redis.call('HDEL', KEYS[2], 's:' .. oldest)
  counts.s = counts.s - 1
end
local half = tonumber(ARGV[1]) / 2
if has_written and redis.call('PTTL', KEYS[2]) < half then redis.call('PEXPIRE', KEYS[2], ARGV[1]) end

-- The canary goes into the server's log, and never to replicas: a copy of this memory must not look like it.
if canary and (is_new or redis.call('PTTL', KEYS[1]) < half) then
  redis.set_repl(redis.REPL_AOF)
  redis.call('SET', KEYS[1], canary, 'PX', ARGV[1])
end

local told, seen = {}, {}
for name, entry in pairs(holdings) do
  for _, value in ipairs({name, entry[1], entry[2], math.max(millis - entry[3], 0), entry[4] - millis}) do
    told[#told + 1] = value
  end
end
for id, sight in pairs(sightings) do
  local is_sure = sight[2] and sight[3] <= now
  for _, value in ipairs({id, sight[1], is_sure and digits(sight[2]) or '', is_sure and now - sight[3] or 0}) do
    seen[#seen + 1] = value
  end
end
return {canary, now, told, seen}
