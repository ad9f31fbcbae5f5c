// What a pickle's values may look like together.
#include <map>
#include <unordered_map>

#include "core/base/error.h"
#include "io/base/pickle_names.h"

namespace melete {

namespace {

using Kind = PickleValue::Kind;
using Items = PickleValue::Items;

template <class Visit>
void children(const PickleValue& value, Visit visit) {
  const auto each = [&](const PickleDict& dict) {
    for (const auto& [key, held] : dict.entries) {
      visit(key);
      visit(held);
    }
    if (dict.attributes) visit(dict.attributes);
  };
  if (const auto* list = std::get_if<Items>(&value.data))
    for (const PickleValue* item : *list) visit(item);
  if (const auto* dict = std::get_if<PickleDict>(&value.data)) each(*dict);
  if (const PickleObject* held = value.object()) {
    if (held->arguments) visit(held->arguments);
    if (held->state) visit(held->state);
    each(held->items);
    for (const PickleValue* item : held->elements) visit(item);
  }
}

// Python keeps the place of a key's first mention and the value of its last.
void merge_keys(PickleDict& dict) {
  std::map<std::pair<Kind, std::string>, size_t> seen;
  std::vector<std::pair<const PickleValue*, const PickleValue*>> kept;
  for (const auto& entry : dict.entries) {
    const PickleValue& key = *entry.first;
    const bool simple = key.is(Kind::text) || key.is(Kind::integer);
    if (simple) {
      const std::string* text = key.text();
      const auto [place, added] =
          seen.try_emplace({key.kind, text ? *text : std::to_string(*key.integer())}, kept.size());
      if (!added) {
        kept[place->second].second = entry.second;
        continue;
      }
    }
    kept.push_back(entry);
  }
  dict.entries = std::move(kept);
}

}  // namespace

void check_pickle_graph(std::deque<PickleValue>& values, const PickleValue* root, size_t pickle_bytes,
                        const std::string& where) {
  for (PickleValue& value : values) {
    if (auto* dict = std::get_if<PickleDict>(&value.data)) merge_keys(*dict);
    if (auto* held = std::get_if<std::unique_ptr<PickleObject>>(&value.data)) merge_keys((*held)->items);
  }
  constexpr size_t kDepthLimit = 200;
  const uint64_t limit = 64 * static_cast<uint64_t>(pickle_bytes) + 4096;
  struct Frame {
    const PickleValue* value;
    std::vector<const PickleValue*> below;
    size_t next = 0;
    uint64_t size = 1;
  };
  std::unordered_map<const PickleValue*, uint64_t> sizes;  // 0: being visited
  std::vector<Frame> path;
  const auto enter = [&](const PickleValue* value) {
    Frame frame{value, {}, 0, 1};
    children(*value, [&](const PickleValue* child) { frame.below.push_back(child); });
    sizes[value] = 0;
    path.push_back(std::move(frame));
  };
  enter(root);
  while (!path.empty()) {
    Frame& frame = path.back();
    if (frame.next == frame.below.size()) {
      sizes[frame.value] = frame.size;
      const uint64_t size = frame.size;
      path.pop_back();
      if (!path.empty()) path.back().size += size;
      continue;
    }
    const PickleValue* child = frame.below[frame.next++];
    const auto found = sizes.find(child);
    if (found == sizes.end()) {
      if (path.size() >= kDepthLimit)
        fail("[{}] damaged pickle: values nested more than {} deep", where, kDepthLimit);
      enter(child);
    } else {
      if (found->second == 0) fail("[{}] damaged pickle: a value that contains itself", where);
      frame.size += found->second;
    }
    if (path.back().size > limit)
      fail("[{}] damaged pickle: its values repeat each other {} times over", where, limit);
  }
}

}  // namespace melete
