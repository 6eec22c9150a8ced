# A formatter for ExUnit that writes records as they happen.
defmodule RatchetFormatter do
  use GenServer

  def init(_options) do
    # A test may change the current folder of the whole VM: paths are relative to the initial one.
    Process.put(:root, File.cwd!())
    Process.put(:out, opened(System.get_env("_RATCHET_REPORT")))
    say(%{kind: "start", nonce: System.get_env("_RATCHET_NONCE") || "", version: System.version()})
    {:ok, %{}}
  end

  def handle_cast({:test_started, test}, state) do
    say(%{kind: "test_start", id: id_of(test), file: relative(test.tags[:file]), line: test.tags[:line] || 0})
    {:noreply, state}
  end

  def handle_cast({:test_finished, test}, state) do
    phase =
      %{
        kind: "phase", id: id_of(test), when: "call", last: true, duration: test.time / 1_000_000,
        file: relative(test.tags[:file]), line: test.tags[:line] || 0, name: to_string(test.name),
        suite: [inspect(test.module)]
      }

    say(Map.merge(phase, told(test.state)))
    {:noreply, state}
  end

  def handle_cast({:suite_finished, _times}, state) do
    say(%{kind: "end", nonce: System.get_env("_RATCHET_NONCE") || ""})
    {:noreply, state}
  end

  def handle_cast({:suite_finished, _run, _load}, state), do: handle_cast({:suite_finished, %{}}, state)
  def handle_cast(_other, state), do: {:noreply, state}

  # A failure that cannot be described is still a failure.
  defp told(state) do
    outcome(state)
  rescue
    _ -> %{outcome: "failed", message: inspect(state)}
  end

  defp outcome(nil), do: %{outcome: "passed"}
  defp outcome({:skipped, reason}), do: %{outcome: "skipped", reason: to_string(reason)}
  defp outcome({:excluded, reason}), do: %{outcome: "skipped", reason: to_string(reason)}
  defp outcome({:invalid, %{state: {:failed, failures}}}), do: Map.put(outcome({:failed, failures}), :when, "setup")
  defp outcome({:invalid, _module}), do: %{outcome: "failed", when: "setup", type: "Invalid", message: "setup_all failed"}

  defp outcome({:failed, [{kind, error, stack} | _]}) do
    # A linked process of the test exited with its exception and stack.
    {kind, error, stack} = within(kind, error, stack)
    found = %{outcome: "failed", type: type(kind, error), message: message(kind, error, stack), frames: frames(stack)}
    if match?(%ExUnit.AssertionError{}, error), do: Map.merge(found, values(error)), else: found
  end

  defp within({:EXIT, _}, {%{__exception__: true} = error, stack}, []) when is_list(stack), do: {:error, error, stack}
  defp within(kind, error, stack), do: {kind, error, stack}

  # The expected value is the pattern, which is code; in a comparison, the right side.
  defp values(%{left: left, right: right} = error) do
    none = ExUnit.AssertionError.no_value()

    case operator(error.expr) do
      :pattern -> shown(:expected, left, none, &Macro.to_string/1) |> Map.merge(shown(:actual, right, none, &inspect/1))
      "!=" when right == none -> Map.merge(values(%{error | right: left}), %{operator: "!="})
      "" -> compared(left, right, none)
      operator -> Map.put(compared(left, right, none), :operator, operator)
    end
  end

  defp compared(left, right, none), do: Map.merge(shown(:actual, left, none, &inspect/1), shown(:expected, right, none, &inspect/1))
  defp shown(_side, none, none, _how), do: %{}
  defp shown(side, value, _none, how), do: %{side => how.(value)}

  defp operator({assertion, _, [inner | _]}) when assertion in [:assert, :refute], do: operator(inner)
  defp operator({name, _, _}) when name in [:assert_receive, :assert_received, :=, :match?], do: :pattern
  defp operator({name, _, [_, _]}) when name in [:!=, :<, :<=, :>, :>=, :in], do: to_string(name)
  defp operator(_), do: ""

  defp type(_kind, %{__exception__: true, __struct__: name}), do: inspect(name)
  defp type({:EXIT, _}, _), do: "EXIT"
  defp type(kind, _), do: to_string(kind)

  defp message(_kind, %ExUnit.AssertionError{message: message, expr: expr}, _stack) do
    if expr == ExUnit.AssertionError.no_value(), do: message, else: "#{message}: #{Macro.to_string(expr)}"
  end

  defp message(kind, error, stack), do: Exception.format_banner(kind, error, stack)

  defp frames(stack) do
    for {module, function, arity, location} <- Enum.reverse(stack),
        file = location[:file],
        file != nil,
        own = own(to_string(file), Process.get(:root)),
        not String.starts_with?(own, "deps/") do
      arity = if is_list(arity), do: length(arity), else: arity
      %{file: own, line: location[:line] || 0, function: "#{inspect(module)}.#{function}/#{arity}"}
    end
  end

  # Returns the project's file of this name. A file loaded after a test changed the folder is named relative to that.
  defp own(file, root) do
    folders = root |> Stream.iterate(&Path.dirname/1) |> Enum.take(length(Path.split(root)))
    found = Enum.find(Enum.map(folders, &Path.expand(file, &1)), &(String.starts_with?(&1, root <> "/") and File.exists?(&1)))
    found && Path.relative_to(found, root)
  end

  defp id_of(test), do: "#{relative(test.tags[:file])}::#{inspect(test.module)} > #{test.name}"
  defp relative(nil), do: ""
  defp relative(file), do: Path.relative_to(to_string(file), Process.get(:root))

  defp say(record) do
    out = Process.get(:out)
    if out, do: :file.write(out, [json(record), "\n"])
  rescue
    _ -> :ok
  end

  # One raw write: events are asynchronous, and a test may halt the VM before a buffered write.
  defp opened(nil), do: nil

  defp opened(path) do
    case :file.open(path, [:append, :raw]) do
      {:ok, out} -> out
      _ -> nil
    end
  end

  # No JSON library can be counted on before Elixir 1.18.
  defp json(map) when is_map(map), do: ["{", map |> Enum.map(fn {k, v} -> [json(to_string(k)), ":", json(v)] end) |> Enum.intersperse(","), "}"]
  defp json(list) when is_list(list), do: ["[", list |> Enum.map(&json/1) |> Enum.intersperse(","), "]"]
  defp json(number) when is_number(number), do: to_string(number)
  defp json(true), do: "true"
  defp json(false), do: "false"
  defp json(nil), do: "null"

  defp json(text) do
    text = to_string(text)
    text = if String.valid?(text), do: text, else: inspect(text)
    escaped = for <<c::utf8 <- text>>, into: "", do: escape(c)
    ["\"", escaped, "\""]
  end

  defp escape(?"), do: "\\\""
  defp escape(?\\), do: "\\\\"
  defp escape(c) when c < 32, do: "\\u" <> String.pad_leading(Integer.to_string(c, 16), 4, "0")
  defp escape(c), do: <<c::utf8>>
end
