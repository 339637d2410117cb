"""From a critic to a log-ratio one may trust."""
