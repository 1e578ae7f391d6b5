"""`stepwell solve`: one run of a test problem, watched, told in words, as VA15 prints it, as JSON and as a picture."""
