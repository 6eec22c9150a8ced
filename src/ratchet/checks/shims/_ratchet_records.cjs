// What the JavaScript guests share: records to the file named by _RATCHET_REPORT. They must never break the host.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const url = require('node:url');
const util = require('node:util');

const FILE = process.env._RATCHET_REPORT;
const NONCE = process.env._RATCHET_NONCE || '';
const ROOT = process.cwd();
const LIMIT = 20000;
const ANSI = /\u001b\[[0-9;]*[A-Za-z]/g;

function say(record) {
  if (!FILE) return;
  try {
    fs.appendFileSync(FILE, JSON.stringify(record) + '\n');
  } catch {}
}

function clip(text) {
  text = String(text ?? '').replace(ANSI, '').replaceAll(ROOT + path.sep, '');
  return text.length <= LIMIT ? text : `${text.slice(0, LIMIT)}… (${text.length} characters)`;
}

function show(value) {
  if (typeof value === 'string') return clip(value);
  try {
    return clip(util.inspect(value, { depth: 8, maxArrayLength: 200, breakLength: 100, sorted: true }));
  } catch {
    return clip(value);
  }
}

function relative(file) {
  if (!file) return '';
  try {
    if (file.startsWith('file:')) file = url.fileURLToPath(file);
  } catch {}
  return path.isAbsolute(file) ? path.relative(ROOT, file) : file;
}

// Project frames only, the innermost last.
function frames(stack) {
  const found = [];
  for (const line of String(stack ?? '').replace(ANSI, '').split('\n')) {
    const match = /^\s*at (?:(.*?) \()?((?:file:\/\/)?[^()\s][^()]*?):(\d+):(\d+)\)?$/.exec(line);
    if (!match || match[2].startsWith('node:')) continue;
    const file = relative(match[2]);
    if (file.startsWith('..') || path.isAbsolute(file) || file.includes('node_modules')) continue;
    found.unshift({ file, line: Number(match[3]), function: match[1] || '' });
  }
  return found.slice(-20);
}

// An error of any library: the deepest cause that says more, what was expected, and where.
function failure(error) {
  if (error === null || typeof error !== 'object') return { type: typeof error, message: show(error), frames: [] };
  const found = {
    type: error.name || error.constructor?.name || 'Error',
    message: clip(error.message ?? show(error)),
    frames: frames(error.stack),
  };
  if ('expected' in error || 'actual' in error) {
    if (error.expected !== undefined || error.actual !== undefined) {
      found.expected = show(error.expected);
      found.actual = show(error.actual);
    }
    if (error.operator) found.operator = String(error.operator);
  }
  return found;
}

function start(version) {
  say({ kind: 'start', nonce: NONCE, version: version || process.version });
}

function end(exit) {
  say({ kind: 'end', nonce: NONCE, exit });
}

module.exports = { say, clip, show, relative, frames, failure, start, end, ROOT };
