#pragma once

namespace troupe {

/// One registration of a process with an object's owner. The owner may only be told that it is over
/// once it has acknowledged it: messages of different kinds may overtake each other. Not
/// synchronised.
class Borrow {
 public:
  /// The owner has acknowledged it, or does not know the object (`is_known` is false). Returns
  /// whether it is to be given back now.
  bool on_acknowledged(bool is_known) {
    is_acknowledged_ = true;
    is_known_ = is_known;
    return is_known_ && is_dropped_;
  }
  /// The process needs it no longer. Returns whether it is to be given back now.
  bool on_dropped() {
    is_dropped_ = true;
    return is_acknowledged_ && is_known_;
  }
  bool is_acknowledged() const { return is_acknowledged_; }

 private:
  bool is_acknowledged_ = false, is_known_ = true, is_dropped_ = false;
};

}  // namespace troupe
