# Adds a reporter to Minitest once it is loaded; required by RUBYOPT.
require_relative '_ratchet_records'

module RatchetMinitest
  class Reporter
    def start
      RatchetRecords.start(defined?(Minitest::VERSION) ? Minitest::VERSION : '')
    end

    def prerecord(klass, name)
      file, line = klass.instance_method(name).source_location
      RatchetRecords.say(kind: 'test_start', id: "#{klass}##{name}", file: RatchetRecords.relative(file), line: line.to_i)
    rescue StandardError
      RatchetRecords.say(kind: 'test_start', id: "#{klass}##{name}")
    end

    def record(result)
      klass = result.respond_to?(:klass) ? result.klass : result.class.name
      file, line = result.respond_to?(:source_location) ? result.source_location : [nil, 0]
      row = {
        kind: 'phase', id: "#{klass}##{result.name}", when: 'call', last: true, outcome: 'passed', duration: result.time,
        file: RatchetRecords.relative(file), line: line.to_i, name: result.name, suite: [klass]
      }
      RatchetRecords.say(row.merge(outcome_of(result)))
    rescue StandardError
      nil
    end

    def outcome_of(result)
      return {} if result.passed?
      return { outcome: 'skipped', reason: RatchetRecords.clip(result.failure.message) } if result.skipped?

      failure = result.failure
      cause = failure.respond_to?(:error) ? failure.error : failure
      found = {
        outcome: 'failed', error: failure.is_a?(Minitest::UnexpectedError), type: cause.class.name, message: RatchetRecords.clip(cause.message),
        frames: RatchetRecords.frames(cause.backtrace)
      }
      match = /^Expected: (.*?)\n\s*Actual: (.*)\z/m.match(found[:message])
      match ? found.merge(expected: match[1], actual: match[2].strip) : found.merge(sides(found[:message]))
    end

    # For longer values there is only a diff, from which both can be derived if it begins with their first line.
    def sides(message)
      rows = message[/^--- expected\n\+\+\+ actual\n@@ -1\b[^\n]*@@\n(.*)\z/m, 1].to_s.lines
      return {} if rows.empty? || rows.any? { |row| row.start_with?('@@') }

      one = ->(sign) { rows.select { |row| row.start_with?(' ', sign) }.map { |row| row[1..] }.join.strip }
      { expected: one.call('-'), actual: one.call('+') }
    end

    def report; end

    def passed?
      true
    end
  end

  def self.join
    return unless defined?(Minitest) && Minitest.respond_to?(:reporter) && Minitest.respond_to?(:extensions)

    Minitest.singleton_class.class_eval do
      def plugin_ratchet_init(_options)
        reporter << RatchetMinitest::Reporter.new
      end
    end
    Minitest.extensions << 'ratchet' unless Minitest.extensions.include?('ratchet')
    Minitest.after_run { RatchetRecords.finish }
  rescue StandardError
    nil
  end
end

# This file is loaded before Minitest: wait for its main module.
if ENV['_RATCHET_REPORT']
  TracePoint.new(:end) do |point|
    if point.self.is_a?(Module) && point.self.name == 'Minitest' && point.self.respond_to?(:autorun)
      point.disable
      RatchetMinitest.join
    end
  end.enable
end
