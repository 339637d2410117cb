"""Numbers of real and fake samples."""
