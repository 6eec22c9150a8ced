package shop

import "testing"

func TestPasses(t *testing.T) {
	if Sum(1, 2) != 3 {
		t.Fatal("sum is wrong")
	}
}

func TestFails(t *testing.T) {
	if got, want := Sum(1, 2), 4; got != want {
		t.Errorf("Sum(1, 2) = %d, want %d", got, want)
	}
}

func TestSkipped(t *testing.T) { t.Skip("not today") }

func TestTable(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(string(rune('a'+n)), func(t *testing.T) {
			if n == 2 {
				t.Fatal("two is wrong")
			}
		})
	}
}
