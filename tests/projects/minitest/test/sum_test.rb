require 'minitest/autorun'

class SumTest < Minitest::Test
  def test_passes
    assert_equal 3, 1 + 2
  end

  def test_fails
    assert_equal 4, 1 + 2
  end

  def test_errors
    nil.boom
  end

  def test_is_skipped
    skip 'not today'
  end
end
