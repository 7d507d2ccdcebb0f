"""Who writes programs, who compares films, who criticises them."""
