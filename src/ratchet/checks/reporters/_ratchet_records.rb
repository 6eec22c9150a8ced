# Shared by the Ruby reporters: writes records to the file named by _RATCHET_REPORT. Must never break the host.
require 'json'

module RatchetRecords
  LIMIT = 20_000
  ROOT = "#{Dir.pwd}/"

  module_function

  def say(record)
    return unless @out

    @out.write("#{JSON.generate(record)}\n")
    @out.flush
  rescue StandardError
    nil
  end

  def clip(text)
    text = text.to_s.dup.force_encoding('UTF-8').scrub.gsub(/\e\[[0-9;]*[A-Za-z]/, '')
    text.length <= LIMIT ? text : "#{text[0, LIMIT]}… (#{text.length} characters)"
  end

  def relative(path)
    path.to_s.delete_prefix(ROOT).delete_prefix('./')
  end

  # Project frames only, the innermost last.
  def frames(backtrace)
    found = (backtrace || []).filter_map do |line|
      match = /\A(.+?):(\d+)(?::in [`'](.*)')?\z/.match(line) or next
      path = File.expand_path(match[1])
      next unless path.start_with?(ROOT) && !path.include?('/gems/') && !path.include?('/vendor/')

      { file: relative(path), line: match[2].to_i, function: match[3].to_s }
    end
    found.first(20).reverse
  end

  # Remove the channel and our options from the environment of programs that the tests start.
  def start(version)
    path = ENV.delete('_RATCHET_REPORT') or return
    @nonce = ENV.delete('_RATCHET_NONCE').to_s
    ENV['RUBYOPT'] = ENV['RUBYOPT'].to_s.gsub(/-r\S*_ratchet_\w+\.rb/, '').strip
    @out = File.open(path, 'a')
    say(kind: 'start', nonce: @nonce, version: version)
  rescue StandardError
    nil
  end

  def finish(code = nil)
    say({ kind: 'end', nonce: @nonce, exit: code }.compact)
  end
end
