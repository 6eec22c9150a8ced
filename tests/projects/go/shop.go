package shop

func Sum(numbers ...int) int {
	total := 0
	for _, n := range numbers {
		total += n
	}
	return total
}

func First(numbers []int) int { return numbers[0] }
