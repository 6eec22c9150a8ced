# Observes the events of test-unit's runners; required by RUBYOPT.
require_relative '_ratchet_records'

module RatchetTestUnit
  def notify_listeners(channel, *arguments)
    RatchetTestUnit.hear(channel, arguments.first)
    super
  end

  class << self
    def hear(channel, subject)
      case channel
      when Test::Unit::UI::TestRunnerMediator::STARTED then RatchetRecords.start('')
      when Test::Unit::UI::TestRunnerMediator::FINISHED then RatchetRecords.finish
      when Test::Unit::TestCase::STARTED_OBJECT then begin_test(subject)
      when Test::Unit::TestCase::FINISHED_OBJECT then end_test(subject)
      when Test::Unit::TestResult::FAULT then (@faults ||= []) << subject
      end
    rescue StandardError
      nil
    end

    def id_of(test)
      "#{test.class.name}##{test.local_name}"
    end

    def begin_test(test)
      @faults = []
      @began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      RatchetRecords.say({ kind: 'test_start', id: id_of(test) }.merge(place_of(test)))
    end

    def place_of(test)
      file, line = test.method(test.method_name).source_location
      { file: RatchetRecords.relative(file), line: line.to_i }
    end

    def end_test(test)
      row = {
        kind: 'phase', id: id_of(test), when: 'call', last: true, outcome: 'passed', name: test.local_name,
        suite: [test.class.name], duration: Process.clock_gettime(Process::CLOCK_MONOTONIC) - @began
      }
      RatchetRecords.say(row.merge(place_of(test), outcome))
    end

    def outcome
      red = @faults.find { |fault| [Test::Unit::Failure, Test::Unit::Error].include?(fault.class) }
      return failed(red) if red

      left = @faults.find { |fault| [Test::Unit::Pending, Test::Unit::Omission].include?(fault.class) }
      left ? { outcome: 'skipped', reason: RatchetRecords.clip(left.message) } : {}
    end

    def failed(fault)
      error = fault.respond_to?(:exception)
      found = {
        outcome: 'failed', error: error, type: error ? fault.exception.class.name : 'AssertionFailedError',
        message: RatchetRecords.clip(error ? fault.exception.message : fault.message),
        frames: RatchetRecords.frames(fault.location)
      }
      return found if error || fault.inspected_expected.nil?

      found.merge(expected: fault.inspected_expected.to_s, actual: fault.inspected_actual.to_s)
    end
  end
end

# This file is loaded before test-unit: wait for the class that sends events to its runners.
if ENV['_RATCHET_REPORT']
  TracePoint.new(:end) do |point|
    if point.self.is_a?(Class) && point.self.name == 'Test::Unit::UI::TestRunnerMediator'
      point.disable
      point.self.prepend(RatchetTestUnit)
    end
  end.enable
end
