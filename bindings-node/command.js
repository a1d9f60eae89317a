#!/usr/bin/env node
// The `quorlock` command of the package: hands the command line to the native half.
'use strict'

const { native } = require('./dist/native.js')

process.exit(native.command(process.argv.slice(2)))
