defmodule ShopTest do
  use ExUnit.Case

  test "passes" do
    assert Shop.sum(1, 2) == 3
  end

  test "fails" do
    assert Shop.sum(1, 2) == 4
  end

  test "errors" do
    raise "boom"
  end

  @tag skip: "not today"
  test "is skipped" do
    flunk()
  end
end
