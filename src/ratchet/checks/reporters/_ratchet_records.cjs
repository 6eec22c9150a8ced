// Shared by the JavaScript reporters: writes records to the file named by _RATCHET_REPORT. Must never break the host.
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
    const match = /^\s*at (?:async (?=\/|file:))?(?:(.*?) \()?((?:file:\/\/)?[^()\s][^()]*?):(\d+):(\d+)\)?$/.exec(line);
    if (!match || match[2].startsWith('node:')) continue;
    const file = relative(match[2]);
    if (file.startsWith('..') || path.isAbsolute(file) || file.includes('node_modules')) continue;
    found.unshift({ file, line: Number(match[3]), function: match[1] || '' });
  }
  return found.slice(-20);
}

// Describes an error of any library: the deepest informative cause, the compared values and the location.
function failure(error) {
  if (error === null || typeof error !== 'object') return { type: typeof error, message: show(error), frames: [] };
  const found = {
    // An error from another process has lost its class, which its stack still names.
    type: error.name || /^(\w*(?:Error|Exception))\b/.exec(error.stack ?? '')?.[1] || error.constructor?.name || 'Error',
    message: clip(error.message ?? show(error)),
    frames: frames(error.stack),
  };
  const wanted = error.expected ?? error.expects; // the latter is uvu's
  if ('expected' in error || 'actual' in error) {
    if (wanted !== undefined || error.actual !== undefined) {
      found.expected = show(wanted);
      found.actual = show(error.actual);
    }
    if (error.operator) found.operator = String(error.operator);
  }
  return found;
}

const texts = new Map();

// Returns where a title is in a file; nothing if that is ambiguous.
function lineOf(file, title) {
  if (!texts.has(file)) {
    let text = '';
    try {
      text = fs.readFileSync(path.resolve(ROOT, file), 'utf8');
    } catch {}
    texts.set(file, text);
  }
  const text = texts.get(file);
  const found = ['\'', '"', '`'].flatMap((quote) => {
    const at = text.indexOf(quote + title + quote);
    return at < 0 ? [] : [at, ...(text.includes(quote + title + quote, at + 1) ? [at] : [])];
  });
  return found.length === 1 ? text.slice(0, found[0]).split('\n').length : 0;
}

function start(version) {
  say({ kind: 'start', nonce: NONCE, version: version || process.version });
}

function end(exit) {
  say({ kind: 'end', nonce: NONCE, exit });
}

module.exports = { say, clip, show, relative, frames, failure, lineOf, start, end, ROOT };
