# What the Ruby guests share: records to the file named by _RATCHET_REPORT. They must never break the host.
require 'json'

module RatchetRecords
  LIMIT = 20_000
  ROOT = "#{Dir.pwd}/"

  module_function

  def say(record)
    path = ENV['_RATCHET_REPORT'] or return
    @out ||= File.open(path, 'a')
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

  def start(version)
    say(kind: 'start', nonce: ENV['_RATCHET_NONCE'].to_s, version: version)
  end

  def finish(code = nil)
    say({ kind: 'end', nonce: ENV['_RATCHET_NONCE'].to_s, exit: code }.compact)
  end
end
