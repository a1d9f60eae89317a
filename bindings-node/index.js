// The CommonJS entry: the class itself, which carries every other name, so that
// `require('quorlock')`, `require('quorlock').Redlock` and `require('quorlock').default` are all
// the same.
'use strict'

const api = require('./dist/api.js')

module.exports = Object.assign(api.Redlock, api, { default: api.Redlock })
