-- Stands before the scripts that look at no queue.
local locks, TURN = #KEYS, 0
local function is_behind() return false end
