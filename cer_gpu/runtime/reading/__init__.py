"""The runtime of forecasts, which hands over every event with its symbol."""
