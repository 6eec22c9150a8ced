-- An output handler for busted: JUnit at the end, and a record of each test as it begins and ends.
local REPORT, NONCE = os.getenv('_RATCHET_REPORT'), os.getenv('_RATCHET_NONCE') or ''

local function text(value)
  local escaped = tostring(value):gsub('[%c"\\]', function(c) return string.format('\\u%04x', c:byte()) end)
  return '"' .. escaped .. '"'
end

local function json(value)
  if type(value) ~= 'table' then return type(value) == 'string' and text(value) or tostring(value) end
  local parts = {}
  if value[1] ~= nil then
    for _, item in ipairs(value) do parts[#parts + 1] = json(item) end
    return '[' .. table.concat(parts, ',') .. ']'
  end
  for key, item in pairs(value) do parts[#parts + 1] = text(key) .. ':' .. json(item) end
  return '{' .. table.concat(parts, ',') .. '}'
end

return function(options)
  local busted = require 'busted'
  local handler = require 'busted.outputHandlers.junit'(options)
  local out = REPORT and io.open(REPORT, 'a')
  local said = {}

  local function say(record)
    if out then
      out:write(json(record), '\n')
      out:flush()
    end
    return nil, true
  end

  local function of(element, record)
    local trace, name = element.trace or {}, handler.getFullName(element)
    record.file, record.line = (trace.short_src or ''):gsub('^%./', ''), trace.currentline or 0
    record.id, record.name = record.file .. '::' .. name, name
    return record
  end

  local function begun(element)
    said[element] = nil
    return say(of(element, { kind = 'test_start' }))
  end

  local function failed(element, _, message, trace)
    local at = { file = ((trace or {}).short_src or ''):gsub('^%./', ''), line = (trace or {}).currentline or 0 }
    said[element] = { message = tostring(message), frames = { at } }
    return nil, true
  end

  local function over(element, _, status)
    local why = said[element] or {}
    local outcome = ({ success = 'passed', pending = 'skipped' })[status] or 'failed'
    return say(of(element, {
      kind = 'phase', when = 'call', last = true, outcome = outcome, error = status == 'error',
      duration = element.duration or 0, message = why.message, frames = why.frames,
    }))
  end

  say({ kind = 'start', nonce = NONCE, version = busted.version or '' })
  busted.subscribe({ 'test', 'start' }, begun)
  busted.subscribe({ 'error', 'it' }, failed)
  busted.subscribe({ 'failure', 'it' }, failed)
  busted.subscribe({ 'test', 'end' }, over)
  return handler
end
