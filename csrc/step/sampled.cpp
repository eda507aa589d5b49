#include "step/sampled.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/parallel.h"
#include "engine/sampling.h"
#include "step/recurrent.h"

namespace blackout {
namespace {

Numbers moved(Numbers numbers, i64 place) {
  return {static_cast<char *>(numbers.data) + place * (numbers.half ? 2 : 4), numbers.half};
}

constexpr i64 kWordsEach = 8;  // words of a set that a thread takes at least, where it is divided

}  // namespace

SampledOutput::SampledOutput(const OutputSettings &settings, bool half)
    : settings_(settings),
      half_(half),
      words_(settings.groups * settings.group_words),
      most_(settings.samples + static_cast<i64>(settings.always.size())),
      start_(static_cast<size_t>(settings.groups) + 1),
      drawn_(settings.groups * most_),
      rows_(settings.groups * most_ + words_),
      multiplicity_(settings.groups * most_),
      sample_offset_(settings.groups * most_),
      target_offset_(words_),
      value_(words_),
      d_target_(words_),
      scaled_(words_ * settings.size, half),
      row_values_((settings.groups * most_ + words_) * settings.size, half),
      bias_values_(settings.groups * most_ + words_) {}

void SampledOutput::draw(const OutputTables &tables, u64 step, const i64 *target, int threads) {
  const i64 groups = settings_.groups, samples = settings_.samples;
  draw_samples(tables.threshold, tables.alias, settings_.vocab, settings_.seed, step, groups, samples,
               drawn_, threads);
  if (!settings_.always.empty()) {  // the sets lie `samples` apart: make room behind each
    for (i64 group = groups - 1; group >= 0; --group) {
      std::memmove(drawn_ + group * most_, drawn_ + group * samples,
                   static_cast<size_t>(samples) * sizeof(i64));
      std::copy(settings_.always.begin(), settings_.always.end(), drawn_ + group * most_ + samples);
    }
  }
  merge(threads);
  double constant = 0;
  if (settings_.objective == kNce)
    constant = std::log(static_cast<double>(most_)) +
               (tables.log_z ? static_cast<double>(*tables.log_z) : tables.constant_log_z);
  const auto offset = [&](const i64 *words, i64 n, bool weighs_one, float *out) {
    parallel_ranges(n, 4096, threads, [&](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) {
        const i64 word = words[i];
        const double log_q = weighs_one ? 0.0 : tables.log_q[word];
        out[i] = static_cast<float>(log_q + constant) - (tables.bias ? tables.bias[word] : 0.0f);
      }
    });
  };
  offset(rows_, start_[static_cast<size_t>(groups)], false, sample_offset_);
  offset(target, words_, settings_.target_one, target_offset_);
  std::memcpy(rows_ + start_[static_cast<size_t>(groups)], target,
              static_cast<size_t>(words_) * sizeof(i64));
}

// Fills rows_ and multiplicity_ with the words of all sets, one behind the other.
void SampledOutput::merge(int threads) {
  const i64 groups = settings_.groups;
  if (!settings_.merge) {
    std::memcpy(rows_, drawn_, static_cast<size_t>(groups * most_) * sizeof(i64));
    for (i64 group = 0; group <= groups; ++group)
      start_[static_cast<size_t>(group)] = group * most_;
    return;
  }
  merge_copies(drawn_, groups, most_, rows_, multiplicity_, threads);
  i64 found = 0;
  for (i64 group = 0; group < groups; ++group) {
    const i64 *words = rows_ + group * most_;
    const float *copies = multiplicity_ + group * most_;
    const i64 n = std::find(copies, copies + most_, 0.0f) - copies;
    std::memmove(rows_ + found, words, static_cast<size_t>(n) * sizeof(i64));
    std::memmove(multiplicity_ + found, copies, static_cast<size_t>(n) * sizeof(float));
    start_[static_cast<size_t>(group)] = found;
    found += n;
  }
  start_[static_cast<size_t>(groups)] = found;
}

SampledOutput::Set SampledOutput::set(i64 group) const {
  const i64 first = start_[static_cast<size_t>(group)];
  return {group,
          start_[static_cast<size_t>(group) + 1] - first,
          group * settings_.group_words,
          rows_ + first,
          sample_offset_ + first,
          settings_.merge ? multiplicity_ + first : nullptr,
          first};
}

// Logits of words begin … end-1 of a set, turned into objectives and derivatives.
void SampledOutput::objective(const Set &s, const Desk &desk, i64 begin, i64 end,
                              float *scratch) const {
  const i64 h = settings_.size;
  const Panels right = panels(desk.columns, h, s.columns);
  kernels().product({moved(operands_, s.first_word * h), h, 1, right, {desk.logits, false},
                     s.columns, false},
                    begin, end);
  WordArgs a{};
  a.objective = settings_.objective;
  a.keep_copies = settings_.keep_copies;
  a.group_words = settings_.group_words;  // words of this set alone: its group is number 0
  a.samples = s.columns;
  a.size = h;
  a.hidden = hidden_ + s.first_word * h;
  a.table = tables_.weight;
  a.target = target_ + s.first_word;
  a.target_offset = target_offset_ + s.first_word;
  a.sample = s.sample;
  a.sample_offset = s.offset;
  a.multiplicity = s.multiplicity;
  a.logits = {desk.logits, false};
  a.derivatives = half_ ? Numbers(desk.derivatives) : a.logits;
  a.value = value_ + s.first_word;
  a.d_target = d_target_ + s.first_word;
  kernels().words(a, begin, end, scratch);
  kernels().scale_hidden({h, hidden_, factor_, d_target_, scaled_,
                          row_values_.at(start_[static_cast<size_t>(settings_.groups)] * h)},
                         s.first_word + begin, s.first_word + end);
}

void SampledOutput::hidden_gradient(const Set &s, const Desk &desk, i64 begin, i64 end) const {
  const i64 h = settings_.size;
  const Numbers derivatives = half_ ? Numbers(desk.derivatives) : Numbers{desk.logits, false};
  kernels().product({derivatives, s.columns, 1, panels(desk.rows, s.columns, h),
                     {desk.product, false}, h, false},
                    begin, end);
  kernels().hidden_gradient({h, {desk.product, false}, tables_.weight, target_ + s.first_word,
                             d_target_ + s.first_word, factor_ + s.first_word,
                             d_hidden_ + s.first_word * h},
                            begin, end);
}

// Gradients of the rows of samples begin … end-1 of a set.
void SampledOutput::row_gradient(const Set &s, const Desk &desk, i64 begin, i64 end) const {
  const i64 h = settings_.size, words = settings_.group_words;
  const Numbers derivatives = half_ ? Numbers(desk.derivatives) : Numbers{desk.logits, false};
  kernels().product({derivatives, 1, s.columns, panels(desk.states, words, h),
                     row_values_.at(s.row * h), h, false},
                    begin, end);
  if (tables_.bias || tables_.log_z)
    kernels().column_sums({derivatives, words, s.columns, factor_ + s.first_word,
                           bias_values_ + s.row},
                          begin, end);
}

void SampledOutput::pack_samples(const Set &s, const Desk &desk, bool as_columns, int threads) const {
  const i64 h = settings_.size;
  if (as_columns)
    pack_columns({tables_.weight, h, s.sample, panels(desk.columns, h, s.columns)}, s.columns,
                 threads);
  else
    pack_rows({tables_.weight, h, s.sample, panels(desk.rows, s.columns, h)}, s.columns, threads);
}

void SampledOutput::pack_states(const Set &s, const Desk &desk, int threads) const {
  const i64 h = settings_.size, words = settings_.group_words;
  pack_rows({scaled_.at(s.first_word * h), h, nullptr, panels(desk.states, words, h)}, words,
            threads);
}

void SampledOutput::run_alone(i64 group, const Desk &desk) const {
  const Set s = set(group);
  const i64 words = settings_.group_words;
  pack_samples(s, desk, true, 1);
  objective(s, desk, 0, words, desk.scratch);
  pack_samples(s, desk, false, 1);
  hidden_gradient(s, desk, 0, words);
  pack_states(s, desk, 1);
  row_gradient(s, desk, 0, s.columns);
}

void SampledOutput::run_divided(i64 group, const Desk &desk, int threads) const {
  const Set s = set(group);
  const i64 words = settings_.group_words, most = word_scratch(most_);
  pack_samples(s, desk, true, threads);
  pack_samples(s, desk, false, threads);
  parallel_ranges(words, kWordsEach, threads, [&](i64 begin, i64 end) {
    const Memory<float> scratch(most);
    objective(s, desk, begin, end, scratch);
    hidden_gradient(s, desk, begin, end);
  });
  pack_states(s, desk, threads);
  parallel_ranges(s.columns, kWordsEach, threads,
                  [&](i64 begin, i64 end) { row_gradient(s, desk, begin, end); });
}

void SampledOutput::run(const OutputTables &tables, const float *hidden, Numbers operands,
                        const i64 *target, const float *factor, float *d_hidden, int threads) {
  tables_ = tables;
  hidden_ = hidden, operands_ = operands, target_ = target, factor_ = factor, d_hidden_ = d_hidden;
  const i64 h = settings_.size, words = settings_.group_words, groups = settings_.groups;
  const bool divided = groups < threads;
  const int desks = divided ? 1 : threads;
  while (static_cast<int>(desks_.size()) < desks) {
    Desk desk;
    desk.columns = NumberMemory(panel_numbers(h, most_), half_);
    desk.rows = NumberMemory(panel_numbers(most_, h), half_);
    desk.states = NumberMemory(panel_numbers(words, h), half_);
    desk.logits = Memory<float>(words * most_);
    if (half_) desk.derivatives = NumberMemory(words * most_, true);
    desk.product = Memory<float>(words * h);
    desk.scratch = Memory<float>(word_scratch(most_));
    desks_.push_back(std::move(desk));
  }
  if (divided) {
    for (i64 group = 0; group < groups; ++group) run_divided(group, desks_[0], threads);
  } else {
    auto some = [&](int number) {
      for (i64 group = number; group < groups; group += desks)
        run_alone(group, desks_[static_cast<size_t>(number)]);
    };
    parallel(desks, threads, some);
  }
  if (tables.bias || tables.log_z) {
    float *of_targets = bias_values_ + start_[static_cast<size_t>(groups)];
    for (i64 word = 0; word < words_; ++word) of_targets[word] = d_target_[word] * factor[word];
  }
}

float SampledOutput::d_log_z() const {
  double total = 0;
  for (i64 i = 0; i < gradient_rows(); ++i) total += static_cast<double>(bias_values_[i]);
  return static_cast<float>(-total);
}

}  // namespace blackout
