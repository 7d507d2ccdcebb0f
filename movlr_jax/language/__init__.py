"""Proposers, judges and critics, and the clients of the models behind them."""
