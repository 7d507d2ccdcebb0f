"""The environments of MuJoCo Playground as tasks."""
