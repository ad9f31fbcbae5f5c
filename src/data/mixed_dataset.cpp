#include "data/mixed_dataset.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/random.h"

namespace melete {

MixedDataset::MixedDataset(std::vector<MixedPart> parts) : parts_(std::move(parts)) {
  std::erase_if(parts_, [](const MixedPart& part) { return part.share <= 0; });
  require(!parts_.empty(), "[data] expected a mixture of which something has a share above 0");
  double shares = 0, places = 0;
  for (const MixedPart& part : parts_) {
    require(part.items != nullptr && part.items->size() > 0, "[data] a part of a mixture has no items");
    shares += part.share;
  }
  for (const MixedPart& part : parts_)
    places = std::max(places, static_cast<double>(part.items->size()) * shares / part.share);
  int64_t end = 0;
  for (const MixedPart& part : parts_) {
    end += std::max(part.items->size(), static_cast<int64_t>(std::llround(places * part.share / shares)));
    ends_.push_back(end);
  }
}

int64_t MixedDataset::places(size_t part) const {
  return ends_.at(part) - (part == 0 ? 0 : ends_[part - 1]);
}

MixedDataset::Place MixedDataset::place(int64_t index) const {
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), index);
  require(index >= 0 && found != ends_.end(), "[data] item {} of a mixture of {}", index, size());
  const auto part = static_cast<size_t>(found - ends_.begin());
  const int64_t within = index - (part == 0 ? 0 : ends_[part - 1]), count = parts_[part].items->size();
  return {parts_[part].items.get(), within % count, within / count};
}

Item MixedDataset::draw(uint64_t seed, uint64_t epoch, int64_t index) {
  const Place at = place(index);
  const uint64_t own = at.round == 0 ? seed : random_key(seed, "again", {static_cast<uint64_t>(at.round)});
  return at.items->draw(own, epoch, at.index);
}

double MixedDataset::length(int64_t index) const {
  const Place at = place(index);
  return at.items->length(at.index);
}

}  // namespace melete
