"""The batch job of the guides: sorts three million numbers in about one second."""

import random

numbers = [random.random() for _ in range(3_000_000)]
numbers.sort()
print("median:", round(numbers[len(numbers) // 2], 1))
