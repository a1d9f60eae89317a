local token = ARGV[1]
local highest = redis.call('GET', KEYS[1])
if highest then
    if not string.match(highest, '^%d+$') then
        return redis.error_reply('ERR ' .. KEYS[1] .. ' holds no fencing token')
    end
    if #highest > #token or (#highest == #token and highest > token) then
        return {0, highest}
    end
end
redis.call('SET', KEYS[1], token)
return {1, redis.call(unpack(ARGV, 2))}
