local locks = #KEYS
