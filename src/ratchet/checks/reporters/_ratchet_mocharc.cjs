// A configuration for mocha: the project's own without its files, which mocha would add to those that were asked for.
'use strict';
const { options, config, pkg } = JSON.parse(process.env._RATCHET_MOCHARC);
const mocha = require(options);
const { spec, _, ...rest } = { ...mocha.loadPkgRc({ package: pkg || undefined }), ...mocha.loadRc({ config: config || undefined }) };
module.exports = rest;
