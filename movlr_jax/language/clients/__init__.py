"""Clients of model servers: requests, answers, keys, prices, retries."""
