"""Sampling-based planning: MPPI over controls, or over postures with a muscle controller (MPC2)."""
