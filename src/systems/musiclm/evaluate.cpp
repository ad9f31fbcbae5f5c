#include "systems/musiclm/evaluate.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "core/base/error.h"
#include "core/base/random.h"

namespace melete::musiclm {

namespace {

const std::vector<int64_t> kRecalls = {1, 5, 10};

std::string lower(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

bool holds(const std::string& text, const std::string& label) {
  const auto is_word = [&](size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (size_t at = text.find(label); at != std::string::npos; at = text.find(label, at + 1))
    if ((at == 0 || !is_word(at - 1)) && !is_word(at + label.size())) return true;
  return false;
}

void add(RetrievalFigures& sum, const RetrievalFigures& one, double share) {
  sum.recall.resize(one.recall.size(), 0);
  for (size_t i = 0; i < one.recall.size(); ++i) sum.recall[i] += share * one.recall[i];
  sum.median_rank += share * one.median_rank;
  sum.mean_rank += share * one.mean_rank;
}

}  // namespace

RetrievalTable evaluate_retrieval(const EvaluatedPairs& pairs, int64_t among, uint64_t seed) {
  const int64_t count = pairs.audio.size(0);
  RetrievalTable table;
  table.ks = kRecalls;
  table.among = among > 0 ? among : count;
  require(table.among >= 2 && table.among <= count,
          "[eval] expected between 2 and {} candidates (there are so many pairs), got {}", count,
          table.among);
  std::map<std::string, int64_t> number;
  std::vector<int64_t> group;
  for (const std::string& text : pairs.texts)
    group.push_back(number.try_emplace(text, static_cast<int64_t>(number.size())).first->second);
  const at::Tensor groups = at::tensor(group, at::kLong);
  const at::Tensor order =
      at::randperm(count, at::detail::createCPUGenerator(random_key(seed, "eval retrieval")), at::kLong);
  const int64_t rounds = count / table.among;
  for (int64_t round = 0; round < rounds; ++round) {
    const at::Tensor rows = order.narrow(0, round * table.among, table.among);
    const at::Tensor audio = pairs.audio.index_select(0, rows).to(at::kDouble),
                     text = pairs.text.index_select(0, rows).to(at::kDouble),
                     same = groups.index_select(0, rows);
    add(table.text_to_audio, retrieval(text, audio, kRecalls, same), 1.0 / static_cast<double>(rounds));
    add(table.audio_to_text, retrieval(audio, text, kRecalls, same), 1.0 / static_cast<double>(rounds));
  }
  table.chance = retrieval_by_chance(table.among, kRecalls);
  return table;
}

double ZeroShotTable::accuracy() const {
  const auto all = confusion.sum().item<int64_t>();
  return all == 0 ? 0 : confusion.diagonal().sum().item<double>() / static_cast<double>(all);
}

double ZeroShotTable::majority() const {
  const auto all = confusion.sum().item<int64_t>();
  return all == 0 ? 0 : confusion.sum(1).max().item<double>() / static_cast<double>(all);
}

ZeroShotTable evaluate_zero_shot(const EvaluatedPairs& pairs, const ZeroShot& classifier) {
  ZeroShotTable table;
  table.labels = classifier.labels();
  const auto labels = static_cast<int64_t>(table.labels.size());
  table.confusion = at::zeros({labels, labels}, at::kLong);
  const at::Tensor given = classifier.probabilities(pairs.audio).argmax(1);
  for (size_t i = 0; i < pairs.texts.size(); ++i) {
    const std::string text = lower(pairs.texts[i]);
    std::vector<int64_t> held;
    for (int64_t label = 0; label < labels; ++label)
      if (holds(text, lower(table.labels[static_cast<size_t>(label)]))) held.push_back(label);
    if (held.size() != 1) {
      ++table.left_out;
      continue;
    }
    table.confusion[held.front()][given[static_cast<int64_t>(i)].item<int64_t>()] += 1;
  }
  return table;
}

}  // namespace melete::musiclm
