"""Clients of model servers: requests, answers, prices and retries."""
