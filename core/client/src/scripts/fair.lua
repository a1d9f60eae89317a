-- Says, for a grant in fair mode, whether an earlier waiter goes first, and calls that one. Stands
-- between queue.lua and grant.lua.
local function is_behind()
  local member, arrived = ARGV[#ARGV - 1], tonumber(ARGV[#ARGV])
  -- Without the rights there would be no order: none of those users has a place.
  need_rights(1)
  local function has_older()
    local first = at_rank(1, 0)
    if not first or first == member then return false end
    local since = tonumber(redis.call('ZSCORE', KEYS[locks + 1], first))
    return since < arrived or (since == arrived and first < member)
  end
  drop_ended(1)
  if not has_older() then return false end
  call(1)
  return has_older()
end
