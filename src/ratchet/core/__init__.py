"""The product as pure values and functions: no clock, disk, environment, randomness or `await` in here."""
