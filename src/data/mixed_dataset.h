// Items of several collections, with a share of each: the scarcer ones come round more often.
#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"

namespace melete {

struct MixedPart {
  std::shared_ptr<Dataset> items;
  double share = 1;  // of the items of an epoch, beside the other parts' shares
};

// An epoch is as long as it must be for every item of every part to come at least once.
class MixedDataset : public Dataset {
 public:
  explicit MixedDataset(std::vector<MixedPart> parts);

  int64_t size() const override { return ends_.back(); }
  Item draw(uint64_t seed, uint64_t epoch, int64_t index) override;
  double length(int64_t index) const override;
  int64_t places(size_t part) const;  // items of an epoch that come from it

 private:
  // Which part, and which of its items, a place of the epoch stands for. The second time round is another
  // `round`, so that random segments differ.
  struct Place {
    Dataset* items;
    int64_t index, round;
  };
  Place place(int64_t index) const;

  std::vector<MixedPart> parts_;
  std::vector<int64_t> ends_;  // one past the last place of each part
};

}  // namespace melete
