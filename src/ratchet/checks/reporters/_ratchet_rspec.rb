# A formatter for RSpec that writes records as they happen.
require_relative '_ratchet_records'
require 'rspec/core'

class RatchetFormatter
  RSpec::Core::Formatters.register self, :start, :example_started, :example_passed, :example_failed,
                                   :example_pending, :message, :close, :dump_summary

  # Keeps the values that a matcher compared with the error that it raises.
  module Values
    def fail_with(message, expected = nil, actual = nil)
      super
    rescue StandardError, Exception => e
      e.instance_variable_set(:@ratchet, [expected, actual]) unless expected.nil? && actual.nil?
      raise
    end
  end

  # A file that does not load keeps RSpec from running the others. Here they run, without that file, and the run
  # still fails.
  module Onward
    def load_file_handling_errors(method, file)
      was = RSpec.world.wants_to_quit
      super.tap do
        if method == :load && RSpec.world.wants_to_quit && !was
          RSpec.world.wants_to_quit = false
          RSpec.world.example_groups.reject! { |group| group.metadata[:absolute_file_path] == file }
        end
      end
    end
  end
  RSpec::Core::Configuration.prepend(Onward)

  def initialize(_output)
    RatchetRecords.start(RSpec::Core::Version::STRING)
    @broken = 0
    RSpec::Expectations.singleton_class.prepend(Values) if defined?(RSpec::Expectations)
  rescue StandardError
    nil
  end

  def start(_notification)
    RSpec::Expectations.singleton_class.prepend(Values) if defined?(RSpec::Expectations)
  rescue StandardError
    nil
  end

  def example_started(notification)
    file, line = place_of(notification.example)
    RatchetRecords.say(kind: 'test_start', id: id_of(notification.example), file: file, line: line)
  rescue StandardError
    nil
  end

  def example_passed(notification)
    tell(notification.example, outcome: 'passed')
  end

  def example_pending(notification)
    result = notification.example.execution_result
    if result.pending_exception
      tell(notification.example, outcome: 'skipped', xfail: RatchetRecords.clip(result.pending_message))
    else
      tell(notification.example, outcome: 'skipped', reason: RatchetRecords.clip(result.pending_message))
    end
  end

  def example_failed(notification)
    error = notification.example.execution_result.exception
    error = error.all_exceptions.first while error.respond_to?(:all_exceptions)
    record = {
      outcome: 'failed', type: error.class.name, message: RatchetRecords.clip(error.message).strip,
      frames: RatchetRecords.frames(error.backtrace)
    }
    tell(notification.example, **record, **values(error, record[:message]))
  rescue StandardError
    nil
  end

  # RSpec reports a file that does not load as a message before the first example.
  def message(notification)
    text = RatchetRecords.clip(notification.message)
    return unless text.include?('error occurred outside of examples') || text.match?(/An error occurred (?:while loading|in )/)

    # Only the stack frames locate a hook.
    file = (text[/while loading (\S+?)\.?$/, 1] || text[/^\s*# (\S+?):\d+/, 1]).to_s.delete_prefix('./')
    type = text[/^\s*([A-Z]\w*(?:::\w+)*):\s*$/, 1]
    at = text[/#{Regexp.escape(File.basename(file))}:(\d+)/, 1].to_i
    body = text.split("\n").map(&:strip)
    index = type ? body.index("#{type}:") : nil
    said = index ? body[index + 1] : body.reject(&:empty?).last
    @broken += 1
    RatchetRecords.say(kind: 'broken', tool: 'rspec', file: file, line: at, type: type.to_s, message: said.to_s)
  rescue StandardError
    nil
  end

  # A failure before this formatter was loaded: a helper that an option requires.
  def dump_summary(notification)
    lost = notification.errors_outside_of_examples_count.to_i - @broken
    lost.times { RatchetRecords.say(kind: 'broken', tool: 'rspec', type: 'Error', message: 'an error occurred outside of examples') }
  rescue StandardError
    nil
  end

  def close(_notification)
    RatchetRecords.finish
  end

  private

  def id_of(example)
    example.id.delete_prefix('./')
  end

  # A shared example is written in one file and belongs to another, which includes it.
  def place_of(example)
    metadata = example.metadata
    own = id_of(example)[/\A(.*)\[/, 1]
    written = RatchetRecords.relative(metadata[:file_path])
    return [written, metadata[:line_number]] if own.nil? || own == written

    included = (metadata[:shared_group_inclusion_backtrace] || []).map { |frame| frame.inclusion_location.to_s }
    [own, included.filter_map { |place| place[/#{Regexp.escape(own)}:(\d+)/, 1] }.first.to_i]
  end

  # Several failures of one example are raised together: the compared values are only in the message.
  def values(error, message)
    expected, actual = error.instance_variable_get(:@ratchet)
    return { expected: show(expected), actual: show(actual) } unless expected.nil? && actual.nil?

    told = /^\s*expected:? (.+?)\n\s*(?:got|received):? +(.+?)(?:\n\n|\z)/m.match(message)
    told ? { expected: told[1].strip, actual: told[2].strip } : {}
  end

  def show(value)
    RatchetRecords.clip(value.is_a?(String) ? value : value.inspect)
  end

  def tell(example, **more)
    file, line = place_of(example)
    RatchetRecords.say(
      { kind: 'phase', id: id_of(example), when: 'call', last: true,
        duration: example.execution_result.run_time || 0, file: file, line: line, name: example.full_description,
        suite: example.example_group.parent_groups.map(&:description).reverse }.merge(more)
    )
  rescue StandardError
    nil
  end
end
