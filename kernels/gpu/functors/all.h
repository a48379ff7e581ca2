#pragma once

#include <cstddef>
#include <type_traits>

#include "kernels/gpu/functors/activations.h"
#include "kernels/gpu/functors/boxes.h"
#include "kernels/gpu/functors/broadcast.h"
#include "kernels/gpu/functors/channels.h"
#include "kernels/gpu/functors/columns.h"
#include "kernels/gpu/functors/elementwise.h"
#include "kernels/gpu/functors/embedding.h"
#include "kernels/gpu/functors/finish_conv.h"
#include "kernels/gpu/functors/group_norm.h"
#include "kernels/gpu/functors/halves.h"
#include "kernels/gpu/functors/indexing.h"
#include "kernels/gpu/functors/layer_norm.h"
#include "kernels/gpu/functors/loss.h"
#include "kernels/gpu/functors/moves.h"
#include "kernels/gpu/functors/norm.h"
#include "kernels/gpu/functors/optimizer.h"
#include "kernels/gpu/functors/order.h"
#include "kernels/gpu/functors/plain_products.h"
#include "kernels/gpu/functors/point_losses.h"
#include "kernels/gpu/functors/pool.h"
#include "kernels/gpu/functors/recurrent.h"
#include "kernels/gpu/functors/reduce.h"
#include "kernels/gpu/functors/regions.h"
#include "kernels/gpu/functors/resample.h"
#include "kernels/gpu/functors/row_losses.h"
#include "kernels/gpu/functors/row_moves.h"
#include "kernels/gpu/functors/rows.h"
#include "kernels/gpu/functors/sampling.h"
#include "kernels/gpu/functors/scan.h"
#include "kernels/gpu/functors/sequence.h"
#include "kernels/gpu/functors/totals.h"
#include "kernels/gpu/functors/values.h"
#include "kernels/gpu/functors/volume_pool.h"
#include "kernels/gpu/functors/wide.h"

/// The arithmetic of millrace's GPU kernels. A functor is a struct of numbers and pointers to
/// device memory. Its call operator computes one element, or one row by a team of threads. Both the
/// CUDA compiler and the C++ compiler read these headers, so they include neither fmt nor LLVM. The
/// operators are constexpr, which the CUDA compiler accepts for host and device code.
///
/// A team (for row functors) has rank() in [0, size()), and sum(x), product(x) and max(x) over its
/// threads, which are also barriers. Every thread of a team makes the same calls of these. A team
/// may have more threads than the row has elements, and threads whose rank is above every number of
/// elements.
/// A new functor is added to one of the lists below. Its number in the list is how the C++ side
/// names it to the CUDA side (kernels/gpu/launch.h), so both sides must be built from the same
/// list.
namespace millrace::gpu {

template <typename... Functors>
struct FunctorList {
  static constexpr size_t kSize = sizeof...(Functors);
};

/// The position of a functor in a list; the size of the list if it is not there. No fold
/// expression: compilers limit their length.
template <typename Functor, typename... Functors>
constexpr size_t position_in(FunctorList<Functors...> /*list*/) {
  constexpr bool kSame[] = {std::is_same_v<Functor, Functors>...};
  size_t index = 0;
  while (index < sizeof...(Functors) && !kSame[index]) ++index;
  return index;
}

/// The number of a functor in a list; does not compile if the functor is missing from the list.
template <typename Functor, typename List>
constexpr size_t index_of(List /*list*/) {
  constexpr size_t kIndex = position_in<Functor>(List{});
  static_assert(kIndex < List::kSize, "add the functor to the list");
  return kIndex;
}

/// The lists one after another.
template <typename... First, typename... Second>
FunctorList<First..., Second...> joined(FunctorList<First...>, FunctorList<Second...>);
/// The same for more lists.
template <typename... First, typename... Second, typename... More>
auto joined(FunctorList<First...>, FunctorList<Second...>, More... more) {
  return joined(FunctorList<First..., Second...>{}, more...);
}
/// The type of the joined lists.
template <typename... Lists>
using Joined = decltype(joined(Lists{}...));

/// Copies of elements of any type.
using MoveFunctors =
    FunctorList<Move<uint8_t>, Move<uint16_t>, Move<uint32_t>, Move<uint64_t>, Move<WideWord>,
                Set<uint8_t>, Set<uint16_t>, Set<uint32_t>, Set<uint64_t>, Set<WideWord>,
                Join<uint8_t>, Join<uint16_t>, Join<uint32_t>, Join<uint64_t>, Join<WideWord>,
                Cut<uint8_t>, Cut<uint16_t>, Cut<uint32_t>, Cut<uint64_t>, Cut<WideWord>>;

/// Ops with two operands, by element of the result.
using BinaryFunctors = FunctorList<
    Binary<Add, float>, Binary<Subtract, float>, Binary<Multiply, float>, Binary<Divide, float>,
    Binary<Larger, float>, Binary<Smaller, float>, Binary<LargerNumber, float>,
    Binary<SmallerNumber, float>, Binary<RaiseTo, float>, Binary<Add, int32_t>,
    Binary<Add, int64_t>, Binary<Subtract, int32_t>, Binary<Subtract, int64_t>,
    Binary<Multiply, int32_t>, Binary<Multiply, int64_t>, Binary<Larger, int32_t>,
    Binary<Larger, int64_t>, Binary<Smaller, int32_t>, Binary<Smaller, int64_t>,
    Binary<Equal, float, bool>, Binary<Equal, int32_t, bool>, Binary<Equal, int64_t, bool>,
    Binary<NotEqual, float, bool>, Binary<NotEqual, int32_t, bool>, Binary<NotEqual, int64_t, bool>,
    Binary<Less, float, bool>, Binary<Less, int32_t, bool>, Binary<Less, int64_t, bool>,
    Binary<LessEqual, float, bool>, Binary<LessEqual, int32_t, bool>,
    Binary<LessEqual, int64_t, bool>, Binary<Greater, float, bool>, Binary<Greater, int32_t, bool>,
    Binary<Greater, int64_t, bool>, Binary<GreaterEqual, float, bool>,
    Binary<GreaterEqual, int32_t, bool>, Binary<GreaterEqual, int64_t, bool>, Binary<And, uint8_t>,
    Binary<Or, uint8_t>, Binary<Xor, uint8_t>, BinarySlope<Add, false>, BinarySlope<Add, true>,
    BinarySlope<Subtract, false>, BinarySlope<Subtract, true>, BinarySlope<Multiply, false>,
    BinarySlope<Multiply, true>, BinarySlope<Divide, false>, BinarySlope<Divide, true>,
    BinarySlope<Larger, false>, BinarySlope<Larger, true>, BinarySlope<Smaller, false>,
    BinarySlope<Smaller, true>, BinarySlope<LargerNumber, false>, BinarySlope<LargerNumber, true>,
    BinarySlope<SmallerNumber, false>, BinarySlope<SmallerNumber, true>,
    BinarySlope<RaiseTo, false>, BinarySlope<RaiseTo, true>>;

/// A template for each formula of a list.
template <template <typename> class Template, typename... F>
FunctorList<Template<F>...> applied(Formulas<F...>);
/// Ops with one operand, and their gradients.
using UnaryFunctors = decltype(applied<Unary>(UnaryFormulas{}));
using UnaryGradients = decltype(applied<Gradient>(UnaryFormulas{}));

/// Updates of parameters, and rows of tables.
using RowUpdates = FunctorList<
    Update<Descend>, Update<DescendWithMomentum>, Update<DescendByNorms>, Update<DescendByMoments>,
    Update<DescendByMaximum>, Update<DescendBySquares>, Update<DescendByUpdates>,
    Update<DescendByRoots<false>>, Update<DescendByRoots<true>>, Update<FollowLeader>,
    Update<AdvanceMoments>, Update<StepByTrust>, UpdateOwnRows<Descend>, UpdateAllRows<Descend>,
    UpdateOwnRows<DescendWithMomentum>, UpdateAllRows<DescendWithMomentum>,
    UpdateOwnRows<DescendByMoments>, UpdateAllRows<DescendByMoments>,
    UpdateOwnRows<DescendByMaximum>, UpdateAllRows<DescendByMaximum>,
    UpdateOwnRows<DescendBySquares>, UpdateAllRows<DescendBySquares>,
    UpdateOwnRows<DescendByUpdates>, UpdateAllRows<DescendByUpdates>,
    UpdateOwnRows<DescendByRoots<false>>, UpdateAllRows<DescendByRoots<false>>,
    UpdateOwnRows<DescendByRoots<true>>, UpdateAllRows<DescendByRoots<true>>,
    UpdateOwnRows<FollowLeader>, UpdateAllRows<FollowLeader>, UpdateOwnRows<AdvanceMoments>,
    UpdateAllRows<AdvanceMoments>, PlaceRows, LambDirection, AdvancePowers, PutSums, GroupSums,
    PoolSequence, PoolSequenceGradient, TakeRows<uint8_t, int32_t>, TakeRows<uint8_t, int64_t>,
    TakeRows<uint16_t, int32_t>, TakeRows<uint16_t, int64_t>, TakeRows<uint32_t, int32_t>,
    TakeRows<uint32_t, int64_t>, TakeRows<uint64_t, int32_t>, TakeRows<uint64_t, int64_t>,
    TakeRows<WideWord, int32_t>, TakeRows<WideWord, int64_t>>;

/// Conversions, random numbers and losses.
using ValueFunctors =
    FunctorList<Convert<float, float>, Convert<float, double>, Convert<float, int32_t>,
                Convert<float, int64_t>, Convert<float, uint8_t>, Convert<float, bool>,
                Convert<double, float>, Convert<double, double>, Convert<double, int32_t>,
                Convert<double, int64_t>, Convert<double, uint8_t>, Convert<double, bool>,
                Convert<int32_t, float>, Convert<int32_t, double>, Convert<int32_t, int32_t>,
                Convert<int32_t, int64_t>, Convert<int32_t, uint8_t>, Convert<int32_t, bool>,
                Convert<int64_t, float>, Convert<int64_t, double>, Convert<int64_t, int32_t>,
                Convert<int64_t, int64_t>, Convert<int64_t, uint8_t>, Convert<int64_t, bool>,
                Convert<uint8_t, float>, Convert<uint8_t, double>, Convert<uint8_t, int32_t>,
                Convert<uint8_t, int64_t>, Convert<uint8_t, uint8_t>, Convert<uint8_t, bool>,
                Convert<bool, float>, Convert<bool, double>, Convert<bool, int32_t>,
                Convert<bool, int64_t>, Convert<bool, uint8_t>, Convert<bool, bool>,
                ScaleIntegers<int32_t>, ScaleIntegers<int64_t>, OneHot<int32_t>, OneHot<int64_t>,
                Drop, DropGradient, DrawUniform, PointLoss<LogLoss>, PointLoss<LogisticLoss>,
                PointLossGradient<LogLoss>, PointLossGradient<LogisticLoss>>;

/// Others that compute one element.
using OtherEachFunctors =
    FunctorList<Not, Fill, FillFrom, Scale, SumOfMany, EntropyGradient, SoftmaxEntropyGradient,
                PoolForward, PoolFirstMaximum, PoolBackward, FinishConv, NormInference<>,
                MultiplyElement<>, ConvolveOutput<>, ConvolveInputGradient<>, ClipByNorm,
                Spread<SumOf>, Spread<MeanOf>, Spread<SumOfSquares>, Spread<RootOfSquares>,
                Spread<SumOfMagnitudes>, Spread<ProductOf>, Spread<LargestOf>>;

/// Conversions and products of 16-bit floats, and the scale of the loss that they need.
using HalfFunctors = FunctorList<
    Convert<Half, float>, Convert<float, Half>, Convert<Half, double>, Convert<double, Half>,
    Convert<Half, int32_t>, Convert<int32_t, Half>, Convert<Half, int64_t>, Convert<int64_t, Half>,
    Convert<Half, uint8_t>, Convert<uint8_t, Half>, Convert<Half, bool>, Convert<bool, Half>,
    Convert<Half, Half>, Convert<Half, Brain>, Convert<Brain, float>, Convert<float, Brain>,
    Convert<Brain, double>, Convert<double, Brain>, Convert<Brain, int32_t>,
    Convert<int32_t, Brain>, Convert<Brain, int64_t>, Convert<int64_t, Brain>,
    Convert<Brain, uint8_t>, Convert<uint8_t, Brain>, Convert<Brain, bool>, Convert<bool, Brain>,
    Convert<Brain, Brain>, Convert<Brain, Half>, FindNotFinite<float>, FindNotFinite<Half>,
    FindNotFinite<Brain>, Unscale<float>, Unscale<Half>, Unscale<Brain>, ClearIfFound<uint16_t>,
    ClearIfFound<uint32_t>, NextLossScale, MultiplyElement<Half>, MultiplyElement<Brain>,
    ConvolveOutput<Half>, ConvolveOutput<Brain>, ConvolveInputGradient<Half>,
    ConvolveInputGradient<Brain>, NormInference<Half>, NormInference<Brain>>;
/// The rows of these.
using HalfRows =
    FunctorList<ConvolveFilterGradient<Half>, ConvolveFilterGradient<Brain>, NormSums<Half>,
                NormSums<Brain>, NormTraining<Half>, NormTraining<Brain>, NormBackwardSums<Half>,
                NormBackwardSums<Brain>, NormBackward<Half>, NormBackward<Brain>>;

/// Ops on images.
using VisionEachFunctors =
    FunctorList<CopyWindows, AddWindows, PoolVolumeForward, PoolVolumeBackward<false>,
                PoolVolumeBackward<true>, PutInPlane<int32_t>, PutInPlane<int64_t>,
                TakeFromPlane<int32_t>, TakeFromPlane<int64_t>, SumTaps, GroupNormVectors,
                Binary<Prelu, float>, BinarySlope<Prelu, false>, BinarySlope<Prelu, true>,
                ScaleChannels, NormalizeResponse, NormalizeResponseBack, LargestOfChannels, CodeBox,
                OverlapOfBoxes, PlaceCorners, PredictBox, SampleGrid, SampleGridToImage,
                SampleGridToGrid, MapGrid, AlignRegions, AlignRegionsBack, LargestOfRegions,
                LargestOfRegionsBack, AverageOfPositions, AverageOfPositionsBack, BoxesOfCells>;

/// Ops on images that need rows.
using VisionRowFunctors =
    FunctorList<GroupNorm, GroupNormSums, GroupNormBackward, BinarySlopeSum<Prelu, false>,
                BinarySlopeSum<Prelu, true>, MapGridBack>;

/// Recurrent cells, and rows of sequences.
using SequenceFunctors =
    FunctorList<LstmCell, LstmCellGradient, GruGates, GruCell, GruCellGradient, GruResetGradient,
                GruInputGradient, LstmUnit, LstmUnitGradient, PickRows<uint8_t>, PickRows<uint16_t>,
                PickRows<uint32_t>, PickRows<uint64_t>, PickRows<WideWord>, AddRows,
                MaskSteps<uint8_t>, MaskSteps<uint16_t>, MaskSteps<uint32_t>, MaskSteps<uint64_t>>;
/// Those of them that compute a row.
using SequenceRowFunctors = FunctorList<ProductSums, SequenceSoftmax, SequenceSoftmaxGradient>;

/// Elements chosen by indices and conditions.
using IndexFunctors =
    FunctorList<TakeAt<uint8_t>, TakeAt<uint16_t>, TakeAt<uint32_t>, TakeAt<uint64_t>,
                Choose<uint8_t>, Choose<uint16_t>, Choose<uint32_t>, Choose<uint64_t>,
                PutLast<uint8_t>, PutLast<uint16_t>, PutLast<uint32_t>, PutLast<uint64_t>,
                AddLines<float>, AddLines<double>, AddLines<int32_t>, AddLines<int64_t>,
                Triangle<uint8_t>, Triangle<uint16_t>, Triangle<uint32_t>, Triangle<uint64_t>,
                SetEvery<uint8_t>, SetEvery<uint16_t>, SetEvery<uint32_t>, SetEvery<uint64_t>,
                Multiplex<uint8_t>, Multiplex<uint16_t>, Multiplex<uint32_t>, Multiplex<uint64_t>>;

/// Elementwise ops of f64, and of integers where few ops have them.
using WideFunctors =
    FunctorList<WideUnary<UnaryFormulas>, AnyBinary<WideQuotients, double, double>,
                AnyBinary<IntegerFormulas, int32_t, int32_t>,
                AnyBinary<IntegerFormulas, int64_t, int64_t>, AnyBinary<Comparisons, double, bool>,
                AnyBinary<Comparisons, uint8_t, bool>, Binary<Modulo, float>,
                Binary<FloorDivide, float>, ScaleIntegers<double>,
                ByOneThread<WideSlopeSum<WideBinaryFormulas>>>;
/// Tests, gradients of totals, orders and running sums.
using OrderEachFunctors =
    FunctorList<PlaceInOrder, TestValues, TotalSlope, DivideByNorm, RunningSum<float>,
                RunningSum<double>, RunningSum<int32_t>, RunningSum<int64_t>>;

/// Orders of rows.
using OrderFunctors = FunctorList<FindExtreme, FindInOrder, TestRows, Total, DivideByNormGradient>;
/// Gradients of f64.
using WideRowFunctors = FunctorList<WideSlopeSum<WideBinaryFormulas>>;

/// Losses by element, and elements of gradients of losses by row.
using LossFunctors =
    FunctorList<MapPoints<BinaryEntropy>, MapPoints<BinaryEntropySlope>, MapPoints<Hinge>,
                MapPoints<HingeSlope>, MapPoints<TeacherStudent>, MapPoints<TeacherStudentSlope>,
                MapPoints<Residual>, MapPoints<Huber>, MapPoints<HuberSlope>,
                MapPoints<SignedScore>, MapPoints<ModifiedHuber>, MapPoints<ModifiedHuberSlope>,
                MapPoints<Divergence>, MapPoints<DivergenceSlope>, MapPoints<RankedPair>,
                MapPoints<RankedPairSlope>, MapPoints<MarginRank>, MapPoints<MarginRankSlope>,
                MapPoints<WeightedLogistic>, MapPoints<WeightedLogisticSlope>,
                SoftmaxEntropyAlongGradient, SoftEntropyGradient, MatchEntropy,
                MatchEntropyGradient, SmoothRowGradient>;
/// Losses by row.
using LossRowFunctors = FunctorList<SumPoints<Divergence>, SumPoints<CountedLabel>,
                                    SoftmaxEntropyAlong, SoftEntropy, SmoothRow>;

/// Functors that compute one element.
using EachFunctors =
    Joined<MoveFunctors, BinaryFunctors, UnaryFunctors, UnaryGradients, RowUpdates, ValueFunctors,
           OtherEachFunctors, VisionEachFunctors, SequenceFunctors, IndexFunctors, WideFunctors,
           OrderEachFunctors, HalfFunctors, LossFunctors>;

/// Functors of other families that compute one row.
using OtherRowFunctors = FunctorList<
    SumMiddle, Softmax, SoftmaxGradient, Entropy, SoftmaxEntropy, NormSums<>, NormTraining<>,
    NormBackwardSums<>, NormBackward<>, LayerNorm, LayerNormBackward, LayerNormSums,
    ConvolveFilterGradient<>, Reduce<SumOf>, ReduceParts<SumOf>, Reduce<SumOfSquares>,
    ReduceParts<SumOfSquares>, Reduce<RootOfSquares>, ReduceParts<RootOfSquares>,
    Reduce<SumOfMagnitudes>, ReduceParts<SumOfMagnitudes>, Reduce<ProductOf>,
    ReduceParts<ProductOf>, Reduce<LargestOf>, ReduceParts<LargestOf>, Reduce<SmallestOf>,
    ReduceParts<SmallestOf>, BinarySlopeSum<Add, false>, BinarySlopeSum<Add, true>,
    BinarySlopeSum<Subtract, false>, BinarySlopeSum<Subtract, true>,
    BinarySlopeSum<Multiply, false>, BinarySlopeSum<Multiply, true>, BinarySlopeSum<Divide, false>,
    BinarySlopeSum<Divide, true>, BinarySlopeSum<Larger, false>, BinarySlopeSum<Larger, true>,
    BinarySlopeSum<Smaller, false>, BinarySlopeSum<Smaller, true>,
    BinarySlopeSum<LargerNumber, false>, BinarySlopeSum<LargerNumber, true>,
    BinarySlopeSum<SmallerNumber, false>, BinarySlopeSum<SmallerNumber, true>,
    BinarySlopeSum<RaiseTo, false>, BinarySlopeSum<RaiseTo, true>>;

/// Functors that compute one row.
using RowFunctors = Joined<OtherRowFunctors, VisionRowFunctors, SequenceRowFunctors, OrderFunctors,
                           WideRowFunctors, HalfRows, LossRowFunctors>;

}  // namespace millrace::gpu
