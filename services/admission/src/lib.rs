//! Decides which submissions are valid and which queued job goes next.
