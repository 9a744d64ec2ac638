"""Plans and what is said about them: results, reports, disturbance."""
