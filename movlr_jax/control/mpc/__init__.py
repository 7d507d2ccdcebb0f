"""Planning by sampling: MPPI over postures, with muscle controllers beneath it (MPC2)."""
